"""The jobs that are programs of their own."""
