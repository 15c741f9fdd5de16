"""Test vectors through the production code: one function per vector file, for us and for other implementers."""
