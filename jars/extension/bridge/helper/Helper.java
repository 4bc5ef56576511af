package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * The one helper of this JVM: starts it, sends requests, retries each once on a new one if it ended, and kills it if it hangs.
 *
 * <p>Every failure is a ParquetCryptoRuntimeException, so that a write or read without its helper fails and nothing is written in
 * clear.
 */
final class Helper {
  private static final long PING_SECONDS = 5;
  private static HelperProcess current; // guarded by the class
  private static boolean hookAdded; // guarded by the class
  private static volatile Runnable beforeEnd = () -> {}; // run before this JVM's helper is ended
  private static boolean ending; // guarded by the class

  private Helper() {}

  /** Sends a request and returns the answer's "ok"; raises its "error". */
  static JsonNode ask(ObjectNode request) {
    long deadlineSeconds = Interpreter.deadlineSeconds();
    HelperProcess first = running();
    try {
      return result(exchange(first, request, deadlineSeconds));
    } catch (HelperProcess.Ended firstEnd) {
      try {
        return result(exchange(running(), request, deadlineSeconds));
      } catch (HelperProcess.Ended secondEnd) {
        throw Refusal.of(
            "BridgeError",
            "the helper " + first.command + " ended twice during '" + request.path("op").asText() + "': first "
                + firstEnd.getMessage() + ", then " + secondEnd.getMessage() + "; what it said is in this JVM's stderr; see that "
                + Launch.place(Interpreter.PYTHON_CONF) + " names a Python 3.10+ interpreter that has the key service's library",
            secondEnd);
      }
    }
  }

  /** Sets the task that runs at this JVM's orderly end, while the helper still answers; it replaces an earlier task. */
  static void beforeEnd(Runnable task) {
    beforeEnd = task;
  }

  private static synchronized HelperProcess running() {
    if (ending) {
      throw Refusal.of("BridgeError", "this JVM ends, and its helper has ended");
    }
    List<String> command = Interpreter.command();
    if (current != null && current.isUsable() && current.command.equals(command)) {
      return current;
    }
    if (current != null) {
      current.end("another interpreter was configured");
    }
    try {
      current = new HelperProcess(command);
    } catch (IOException e) {
      throw Refusal.of(
          "BridgeError",
          "the helper " + command + " cannot be started: " + e.getMessage() + "; set " + Launch.place(Interpreter.PYTHON_CONF)
              + " to a Python 3.10+ interpreter that is there on every machine that reads or writes",
          e);
    }
    endWithThisJvm();
    return current;
  }

  /** Adds the shutdown hook, once. A helper ends when its pipe closes, however this JVM ends; the hook is for one that hangs. */
  private static void endWithThisJvm() {
    if (!hookAdded) {
      Runtime.getRuntime().addShutdownHook(new Thread(Helper::endCurrent, "sparkcrypt-helper-end"));
      hookAdded = true;
    }
  }

  private static void endCurrent() {
    beforeEnd.run();
    HelperProcess last;
    synchronized (Helper.class) {
      ending = true; // a concurrent request must not start another
      last = current;
    }
    if (last != null) {
      last.end("this JVM ends");
    }
  }

  private static JsonNode exchange(HelperProcess helper, ObjectNode request, long deadlineSeconds) throws HelperProcess.Ended {
    try {
      return await(helper, request, deadlineSeconds);
    } catch (TimeoutException e) {
      String what = "'" + request.path("op").asText() + "' was not answered within " + deadlineSeconds + " s";
      if (answersHello(helper)) {
        throw Refusal.of(
            "KeyServiceUnavailableError",
            what + " though the helper runs: the key service is slow or cannot be reached; see it, or raise "
                + Launch.place(Interpreter.DEADLINE_CONF),
            e);
      }
      helper.end("it hung and was killed");
      throw Refusal.of(
          "BridgeError",
          what + " and the helper (process " + helper.pid() + ") did not answer a ping within " + PING_SECONDS
              + " s: it hung and was killed; the next request starts a new one; what it said is in this JVM's stderr",
          e);
    }
  }

  private static boolean answersHello(HelperProcess helper) throws HelperProcess.Ended {
    try {
      await(helper, Wire.request("hello"), PING_SECONDS);
      return true;
    } catch (TimeoutException e) {
      return false;
    }
  }

  private static JsonNode await(HelperProcess helper, ObjectNode request, long seconds)
      throws HelperProcess.Ended, TimeoutException {
    HelperProcess.Call call = null;
    try {
      call = helper.send(request);
      return call.answer().get(seconds, TimeUnit.SECONDS);
    } catch (ExecutionException e) {
      throw new HelperProcess.Ended(e.getCause().getMessage());
    } catch (IOException e) {
      throw Refusal.of("BridgeError", "the request cannot be written as JSON: " + e.getMessage(), e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw Refusal.of("BridgeError", "the task was interrupted while it waited for the helper", e);
    } finally {
      if (call != null) {
        helper.forget(call);
      }
    }
  }

  private static JsonNode result(JsonNode document) {
    JsonNode error = document.get("error");
    if (error != null) {
      throw Refusal.of(error.path("type").asText("BridgeError"), error.path("message").asText("no message"));
    }
    JsonNode ok = document.get("ok");
    if (ok == null) {
      throw Refusal.of("BridgeError", "the helper's answer has neither 'ok' nor 'error'; jar and helper do not belong together");
    }
    return ok;
  }
}
