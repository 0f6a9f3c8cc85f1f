package demo;

import static org.junit.Assert.assertEquals;

import java.net.ServerSocket;
import java.net.Socket;
import java.util.concurrent.CompletableFuture;
import java.util.stream.LongStream;
import org.junit.Test;

/** What a build of Java does: threads, a child, a server. Maven starts a JVM of its own for the tests. */
public class ToolchainTest {
    @Test
    public void threads() {
        assertEquals(500500, LongStream.rangeClosed(1, 1000).parallel().sum());
    }

    @Test
    public void child() throws Exception {
        Process child = new ProcessBuilder("echo", "child").start();
        assertEquals("child\n", new String(child.getInputStream().readAllBytes()));
    }

    @Test
    public void server() throws Exception {
        try (ServerSocket server = new ServerSocket(0)) {
            CompletableFuture<Void> answer = CompletableFuture.runAsync(() -> {
                try (Socket socket = server.accept()) {
                    socket.getOutputStream().write("served".getBytes());
                } catch (java.io.IOException error) {
                    throw new java.io.UncheckedIOException(error);
                }
            });
            try (Socket client = new Socket("127.0.0.1", server.getLocalPort())) {
                assertEquals("served", new String(client.getInputStream().readAllBytes()));
            }
            answer.get();
        }
    }
}
