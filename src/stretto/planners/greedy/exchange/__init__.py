"""AllReduce by exchange: partial sums meet instead of all going to one root and back."""
