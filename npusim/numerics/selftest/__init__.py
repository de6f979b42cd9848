"""Reference vectors and the runner that checks every one of them."""
