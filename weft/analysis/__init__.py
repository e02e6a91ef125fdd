"""Static analyses of a function of the IR. They change nothing; passes and checks query them."""
