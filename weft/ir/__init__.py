"""The intermediate representation: types, values, operations and how to make, copy, check and print them."""
