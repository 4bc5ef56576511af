package io.sparkcrypt;

import org.apache.parquet.crypto.KeyAccessDeniedException;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;

/** A factory of the exceptions that parquet-mr expects; a message begins with the name of sparkcrypt's own error class. */
final class Refusal {
  private Refusal() {}

  static ParquetCryptoRuntimeException of(String type, String message) {
    return of(type, message, null);
  }

  static ParquetCryptoRuntimeException of(String type, String message, Throwable cause) {
    String text = type + ": " + message;
    // parquet-mr recognises a denied key by this class, as KmsClient's contract requires.
    return "KeyAccessDeniedError".equals(type)
        ? new KeyAccessDeniedException(text, cause)
        : new ParquetCryptoRuntimeException(text, cause);
  }

  /** Throws a checked exception through an interface that declares none: Spark decides by the exception's class. */
  @SuppressWarnings("unchecked")
  static <E extends Exception> RuntimeException raise(Exception e) throws E {
    throw (E) e;
  }
}
