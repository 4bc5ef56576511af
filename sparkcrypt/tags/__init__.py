"""Where tags come from: schema metadata, table properties, Avro schemas, a policy's overlay."""
