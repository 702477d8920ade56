package e2e

import (
	"io"
	"net"
	"strings"
	"testing"

	"flightline/shared/testenv/program"
)

// A request that never ends keeps no process from its end, with code 0.
func TestAStopDoesNotWaitForRequestsThatDoNotArrive(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	d := s.Start("dev")
	address := strings.TrimPrefix(d.Line(program.Ready), "http://")
	d.Line("first job ")
	var env struct{ APIKey string }
	program.Decode(t, s.OK("env", "-o", "json"), &env)
	authorized := "POST /v2/echo/run HTTP/1.1\r\nHost: " + address + "\r\nAuthorization: Bearer " + env.APIKey + "\r\n"
	var open []net.Conn
	for _, begun := range []string{
		"POST /v2/echo/run HTTP/1.1\r\nHost: ",
		authorized + "Content-Length: 100\r\n\r\n{",
		authorized + "Content-Length: 5000000\r\n\r\n{",
		authorized + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, begun); err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	if got := s.OK("runsync", "echo", `{"n":1}`); !strings.Contains(got, "COMPLETED") { // what came before it was read
		t.Fatalf("got %s, want that it is completed", got)
	}
	d.Stop(program.StopWithin)
	for i, conn := range open {
		if got, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 408 ") {
			t.Errorf("request %d: got %.100q, %v, want 408", i, got, err)
		}
	}
}
