package io.sparkcrypt;

import java.util.LinkedHashMap;
import java.util.Map;

/** A map that keeps the entries added last, up to a maximum; it is not thread-safe. */
final class Newest<K, V> extends LinkedHashMap<K, V> {
  private static final long serialVersionUID = 1L;

  private final int most;

  Newest(int most) {
    this.most = most;
  }

  @Override
  protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
    return size() > most;
  }
}
