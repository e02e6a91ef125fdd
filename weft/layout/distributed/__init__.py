"""Distributed layouts: which register of which thread holds each element of a tile."""
