package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;

/**
 * One helper process and the requests that wait for it.
 *
 * <p>One thread reads, one writes: a helper that no longer reads fills the pipe, and a task's thread that wrote to it directly
 * would hang beyond its deadline.
 */
final class HelperProcess {
  private static final Logger LOG = CleanLog.of(HelperProcess.class);
  private static final byte[] END = new byte[0];
  private static final String ENVIRONMENT_FILE = "SPARKCRYPT_ENVIRONMENT_FILE";
  private static final String ALLOW_HTTP = "SPARKCRYPT_ALLOW_HTTP";

  final List<String> command;
  private final Process process;
  private final BlockingQueue<byte[]> outgoing = new LinkedBlockingQueue<>();
  private final Map<Long, CompletableFuture<JsonNode>> waiting = new ConcurrentHashMap<>();
  private final AtomicLong numbers = new AtomicLong();
  private String endedBecause; // guarded by this

  /** Thrown when the process has ended or was given up; the request may be retried on another. */
  static final class Ended extends Exception {
    private static final long serialVersionUID = 1L;

    Ended(String reason) {
      super(reason);
    }
  }

  /** A request that was sent. */
  record Call(long number, CompletableFuture<JsonNode> answer) {}

  HelperProcess(List<String> command) throws IOException {
    this.command = command;
    // It inherits this JVM's environment, and a file may add to it; its stderr is the executor's log.
    ProcessBuilder builder = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT);
    if (Launch.isSpark()) {
      builder.environment().put(ALLOW_HTTP, String.valueOf(Launch.allowsHttp()));
    }
    String file = Launch.conf(Interpreter.ENVIRONMENT_CONF);
    if (file != null && !file.isBlank()) {
      builder.environment().put(ENVIRONMENT_FILE, file.trim()); // read by the helper itself, so that /proc shows none of it
    }
    this.process = builder.start();
    startThread("sparkcrypt-helper-reader", this::readAnswers);
    startThread("sparkcrypt-helper-writer", this::writeRequests);
    LOG.info("started sparkcrypt helper {} as process {}", command, process.pid());
  }

  long pid() {
    return process.pid();
  }

  synchronized boolean isUsable() {
    return endedBecause == null;
  }

  Call send(ObjectNode request) throws Ended, IOException {
    long number = numbers.incrementAndGet();
    Call call = new Call(number, new CompletableFuture<>());
    byte[] frame = Wire.frame(request.deepCopy().put("id", number));
    synchronized (this) {
      if (endedBecause != null) {
        throw new Ended(endedBecause);
      }
      waiting.put(number, call.answer());
    }
    outgoing.add(frame);
    return call;
  }

  void forget(Call call) {
    waiting.remove(call.number());
  }

  /** Ends the process and fails every request that waits for it; only the first reason is kept. */
  void end(String reason) {
    synchronized (this) {
      if (endedBecause != null) {
        return;
      }
      endedBecause = reason;
    }
    process.destroyForcibly();
    outgoing.add(END);
    waiting.values().forEach(answer -> answer.completeExceptionally(new Ended(reason)));
  }

  private void readAnswers() {
    try (DataInputStream stream = new DataInputStream(new BufferedInputStream(process.getInputStream()))) {
      while (true) {
        JsonNode document = Wire.read(stream);
        CompletableFuture<JsonNode> answer = waiting.remove(document.path("id").asLong());
        if (answer != null) {
          answer.complete(document);
        }
      }
    } catch (IOException e) {
      String message = e.getMessage();
      end("its pipe closed" + (message == null ? "" : " (" + message + ")"));
    } catch (RuntimeException | Error e) {
      end("its answers cannot be read (" + e + ")");
    }
  }

  private void writeRequests() {
    try (OutputStream stream = process.getOutputStream()) {
      for (byte[] frame = outgoing.take(); frame != END; frame = outgoing.take()) {
        stream.write(frame);
        stream.flush();
      }
    } catch (IOException e) {
      end("its pipe closed (" + e.getMessage() + ")");
    } catch (InterruptedException e) {
      end("the thread that writes to it was interrupted");
    }
  }

  private static void startThread(String name, Runnable body) {
    Thread thread = new Thread(body, name);
    thread.setDaemon(true);
    // The thread must not keep the class loader of the first task for the life of the JVM.
    thread.setContextClassLoader(HelperProcess.class.getClassLoader());
    thread.start();
  }
}
