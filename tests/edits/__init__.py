"""Kinds of edits that a compiled kernel must notice, and the means to run a kernel before and after one."""
