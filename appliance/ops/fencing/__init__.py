"""The lease that only one machine at a time may send with: an object in a store, which the sending machine renews."""
