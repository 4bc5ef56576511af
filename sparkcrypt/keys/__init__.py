"""Key services, key material and data keys: with the native format layer, the only place that handles key bytes."""
