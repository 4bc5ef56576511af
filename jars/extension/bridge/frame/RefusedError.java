package io.sparkcrypt;

/**
 * A refusal that Spark does not swallow.
 *
 * <p>With ignoreCorruptFiles Spark catches every RuntimeException and IOException of a file and continues without its rows, so a
 * denied key would result in fewer rows. It does not catch Errors. This one is not fatal to an executor: only VirtualMachineError
 * and similar ones are.
 */
public final class RefusedError extends Error {
  private static final long serialVersionUID = 1L;

  RefusedError(String message) {
    super(message);
  }

  RefusedError(String message, Throwable cause) {
    super(message, cause);
  }
}
