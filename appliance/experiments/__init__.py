"""Experiments: who gets which variant, whether one of them is the best, and what sending nothing would have done."""
