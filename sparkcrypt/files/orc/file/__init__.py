"""Opens ORC files: their tail, types, stripes, streams and statistics, codecs and ciphers."""
