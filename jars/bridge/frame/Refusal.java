package io.sparkcrypt;

import org.apache.parquet.crypto.KeyAccessDeniedException;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;

/** Makes the exceptions that parquet-mr expects; the message begins with the name of sparkcrypt's own error class. */
final class Refusal {
  private Refusal() {}

  static ParquetCryptoRuntimeException of(String type, String message) {
    return of(type, message, null);
  }

  static ParquetCryptoRuntimeException of(String type, String message, Throwable cause) {
    String text = type + ": " + message;
    // Upstream tells a denied key from other failures by this class, as KmsClient's contract asks.
    return "KeyAccessDeniedError".equals(type)
        ? new KeyAccessDeniedException(text, cause)
        : new ParquetCryptoRuntimeException(text, cause);
  }
}
