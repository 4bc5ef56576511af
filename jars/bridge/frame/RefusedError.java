package io.sparkcrypt;

/**
 * A refusal that Spark does not swallow.
 *
 * <p>With ignoreCorruptFiles Spark catches every RuntimeException and IOException of a file and goes on without its rows, so a
 * denied key would read as fewer rows. Errors pass through. This one is not fatal to an executor: only VirtualMachineError and
 * its like are.
 */
public final class RefusedError extends Error {
  private static final long serialVersionUID = 1L;

  RefusedError(String message) {
    super(message);
  }
}
