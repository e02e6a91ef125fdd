"""The intermediate representation: types, values and operations; builder, rebuilder, verifier, printer and parser."""
