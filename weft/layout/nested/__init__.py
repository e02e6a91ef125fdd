"""Nested layouts: a shape with strides, `((2, 2):(4, 1))`, and their algebra."""
