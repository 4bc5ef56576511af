package io.sparkcrypt;

import java.lang.reflect.Field;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import org.apache.parquet.hadoop.api.WriteSupport.WriteContext;

/** An addition to the key-value metadata that a writer will put into its footer. */
final class FooterNote {
  private FooterNote() {}

  /**
   * Adds an entry.
   *
   * <p>ParquetOutputFormat reads WriteContext's metadata after the crypto factory has returned, and neither class has a method to
   * add to it; so the private field is replaced. If parquet-mr changes it, the write fails here rather than without its note.
   */
  static void add(WriteContext context, String key, String value) {
    Map<String, String> entries = new HashMap<>(context.getExtraMetaData());
    entries.put(key, value);
    try {
      Field field = WriteContext.class.getDeclaredField("extraMetaData");
      field.setAccessible(true);
      field.set(context, Collections.unmodifiableMap(entries));
    } catch (ReflectiveOperationException | RuntimeException e) {
      throw Refusal.of("BridgeError", "this version of parquet-mr does not let the policy's digest into the footer", e);
    }
    if (!value.equals(context.getExtraMetaData().get(key))) {
      throw Refusal.of("BridgeError", "this version of parquet-mr keeps the policy's digest out of the footer");
    }
  }
}
