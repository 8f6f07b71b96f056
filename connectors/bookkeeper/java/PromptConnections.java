package headgate;

import java.net.SocketException;
import py4j.DefaultGatewayServerListener;
import py4j.Py4JServerConnection;

/**
 * Has Py4J's answers sent at once. An answer of more than 8 KB leaves in pieces, and the second would wait until the first
 * is acknowledged, which Linux puts off for 40 ms where it expects the other side to say something soon.
 */
public final class PromptConnections extends DefaultGatewayServerListener {
    public void connectionStarted(Py4JServerConnection connection) {
        try {
            connection.getSocket().setTcpNoDelay(true);
        } catch (SocketException closed) {
            // Then nobody waits for an answer.
        }
    }
}
