"""The bundled checkpoint and pictures, and a walk through what the package does with them."""
