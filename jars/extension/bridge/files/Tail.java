package io.sparkcrypt;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;

/** The last bytes of a Parquet file: footer, its length, magic. No more bytes are read than the file has. */
final class Tail {
  private static final int FIRST_READ = 64 * 1024;
  private static final int MAGIC_BYTES = 4;
  private static final int TRAILER_BYTES = 4 + MAGIC_BYTES;

  final Path path;
  final boolean hasEncryptedFooter;
  final byte[] footer;

  Tail(Configuration conf, Path path) throws IOException {
    this.path = path;
    FileSystem fileSystem = path.getFileSystem(conf);
    long length = fileSystem.getFileStatus(path).getLen();
    if (length < MAGIC_BYTES + TRAILER_BYTES) {
      throw formatError("has " + length + " bytes, fewer than any Parquet file");
    }
    try (FSDataInputStream stream = fileSystem.open(path)) {
      byte[] last = new byte[(int) Math.min(length, FIRST_READ)]; // usually the whole footer, in one request
      stream.readFully(length - last.length, last);
      hasEncryptedFooter = hasEncryptedMagic(last);
      int footerLength = footerLength(last, length);
      int end = last.length - TRAILER_BYTES;
      if (footerLength <= end) {
        footer = Arrays.copyOfRange(last, end - footerLength, end);
      } else {
        footer = new byte[footerLength];
        stream.readFully(length - TRAILER_BYTES - footerLength, footer);
      }
    }
  }

  /** Refuses an encrypted footer whose length field does not match the rest of the footer: it would determine a buffer's size. */
  void checkModuleLength(int available) {
    int start = footer.length - available;
    long stated =
        available < 4 ? -1 : Integer.toUnsignedLong(ByteBuffer.wrap(footer, start, 4).order(ByteOrder.LITTLE_ENDIAN).getInt());
    if (stated != available - 4L) {
      throw formatError("its encrypted footer has a wrong length");
    }
  }

  ParquetCryptoRuntimeException formatError(String what) {
    return Refusal.of("FormatError", path + ": " + what + "; it is no Parquet file, or it was damaged");
  }

  private boolean hasEncryptedMagic(byte[] last) {
    String magic = new String(last, last.length - MAGIC_BYTES, MAGIC_BYTES, StandardCharsets.ISO_8859_1);
    if (!magic.equals("PARE") && !magic.equals("PAR1")) {
      throw formatError("does not end with PAR1 or PARE");
    }
    return magic.equals("PARE");
  }

  private int footerLength(byte[] last, long fileLength) {
    int stated = ByteBuffer.wrap(last, last.length - TRAILER_BYTES, 4).order(ByteOrder.LITTLE_ENDIAN).getInt();
    if (stated <= 0 || stated > fileLength - MAGIC_BYTES - TRAILER_BYTES) {
      throw formatError("says that its footer has " + Integer.toUnsignedString(stated) + " bytes, of " + fileLength);
    }
    return stated;
  }
}
