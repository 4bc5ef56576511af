package io.sparkcrypt;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/** A map that keeps the entries added last, up to a maximum; it is not thread-safe. */
final class Newest<K, V> extends LinkedHashMap<K, V> {
  private static final long serialVersionUID = 1L;

  private final int most;

  Newest(int most) {
    this.most = most;
  }

  /** Returns such a map that several threads can use. */
  static <K, V> Map<K, V> synchronizedMap(int most) {
    return Collections.synchronizedMap(new Newest<>(most));
  }

  @Override
  protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
    return size() > most;
  }
}
