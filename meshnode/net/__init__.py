"""The QUIC endpoint with mutual TLS on aioquic, and mDNS on zeroconf."""
