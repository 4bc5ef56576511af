package io.sparkcrypt;

import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.orc.impl.KeyProvider;

/** The factory that ORC finds by Java's ServiceLoader: it opens sparkcrypt's key services if {@code orc.key.provider} names it. */
public final class OrcKeyProviderFactory implements KeyProvider.Factory {
  static {
    Preload.classes();
  }

  @Override
  public KeyProvider create(String kind, Configuration conf, Random random) {
    return RegisteredPolicies.isOrcKeyProvider(kind) ? new OrcKeyProvider(kind, conf) : null;
  }
}
