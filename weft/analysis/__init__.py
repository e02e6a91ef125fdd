"""What can be said about a function of the IR without running it. Analyses change nothing; passes ask them."""
