package web_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/web"
)

const mb = 1 << 20

// sized answers with the size of the body.
func sized(c *fiber.Ctx) error { return c.JSON(fiber.Map{"size": len(c.Body())}) }

// begin opens a connection and sends a request's head.
func begin(t *testing.T, addr, head string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: key\r\n"+head+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return conn
}

// answered reads one answer of JSON.
func answered(t *testing.T, conn net.Conn) (status int, body map[string]any) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Errorf("no answer: %v", err)
		return 0, nil
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Errorf("%d: no JSON: %v", resp.StatusCode, err)
	}
	return resp.StatusCode, body
}

// post sends a body with a key and returns the answer's status.
func post(t *testing.T, addr string, size int) int {
	t.Helper()
	req := request(t, "POST", "http://"+addr, bytes.NewReader(make([]byte, size)))
	req.Header.Set("Authorization", "key")
	return do(t, req).status
}

// 64 clients that send 15 MB of 20 each, and then too little at a time: what they
// would need together is 6 times what there is.
func TestMemoryIsBoundedWhileManyTrickle(t *testing.T) {
	t.Parallel() // the others need less than the bound leaves
	const clients, size, sent, room = 64, 20 * mb, 15 * mb, 160 * mb
	app := web.New(web.Config{BodyMemory: room})
	app.Post("/", sized)
	addr := serve(t, app)
	block := make([]byte, sent)
	runtime.GC()
	base, most := heap(), uint64(0)
	var statuses [600]atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			conn := begin(t, addr, fmt.Sprintf("Content-Length: %d", size))
			done, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				_, _ = conn.Write(block)
				trickle(conn, done)
			}()
			defer func() { close(done); _ = conn.Close(); <-stopped }()
			status, body := answered(t, conn)
			if status == 503 && body["code"] != "unavailable" || status == 408 && !strings.Contains(fmt.Sprint(body), "not sent in time") {
				t.Errorf("got %d %v", status, body)
			}
			statuses[status].Add(1)
		})
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	for running := true; running; {
		select {
		case <-over:
			running = false
		case <-time.After(20 * time.Millisecond):
			most = max(most, heap())
		}
	}
	late, refused := statuses[408].Load(), statuses[503].Load()
	t.Logf("%d MB of heap at most; %d were cut off by the deadline, %d refused", (most-base)/mb, late, refused)
	if grown := most - base; grown > 3*room {
		t.Errorf("got %d MB more heap, want at most %d", grown/mb, 3*room/mb)
	}
	if late == 0 || refused == 0 || late+refused != clients {
		t.Errorf("got %d cut off and %d refused, want some of both and no others", late, refused)
	}
	for range room / size { // all the room is back
		if got := post(t, addr, size); got != 200 {
			t.Errorf("afterwards: got %d", got)
		}
	}
}

// trickle writes 10 KB/s until done, less than the least rate.
func trickle(conn net.Conn, done <-chan struct{}) {
	for {
		if _, err := conn.Write(make([]byte, 1000)); err != nil {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-done:
			return
		}
	}
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapInuse
}

func TestStrangersSendNoLargeBodies(t *testing.T) {
	app := web.New(web.Config{BodyLimit: 2 * mb})
	app.Post("/", sized)
	base := "http://" + serve(t, app)
	for size, want := range map[int]int{0: 200, 64 << 10: 200, 64<<10 + 1: 401, mb: 401, 40 * mb: 401} {
		body := make([]byte, size)
		for name, reader := range map[string]io.Reader{"length": bytes.NewReader(body), "chunked": io.MultiReader(bytes.NewReader(body))} {
			got := do(t, request(t, "POST", base, reader))
			if got.status != want || want == 401 && got.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%d bytes, %s: got %d %v, want %d", size, name, got.status, got.body, want)
			}
		}
	}
}

// rooms is an app whose requests wait until go is closed, each in its way.
func rooms(t *testing.T, cfg web.Config) (addr string, begun chan string, letGo func()) {
	t.Helper()
	app := web.New(cfg)
	begun, leave := make(chan string), make(chan struct{})
	hold := func(c *fiber.Ctx) error {
		if c.Get("X-Done") != "" {
			web.BodyDone(c)
			web.BodyDone(c)
		}
		if c.Get("X-Hold") != "" {
			begun <- "hold"
			<-leave
		}
		return c.JSON(fiber.Map{})
	}
	app.Post("/", hold)
	return serve(t, app), begun, sync.OnceFunc(func() { close(leave) })
}

func TestABodysRoomIsTakenUntilItsHandlerIsDoneWithIt(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		head, body string
		want       int // of another large body meanwhile
	}{
		"held":                      {"X-Hold: 1\r\nContent-Length: 1000000", strings.Repeat("x", 1000000), 503},
		"held, but done with":       {"X-Hold: 1\r\nX-Done: 1\r\nContent-Length: 1000000", strings.Repeat("x", 1000000), 200},
		"small":                     {"X-Hold: 1\r\nContent-Length: 65536", strings.Repeat("x", 65536), 200},
		"announced, not sent":       {"X-Hold: 1\r\nContent-Length: 1000000", "", 200},
		"chunked, not sent":         {"X-Hold: 1\r\nTransfer-Encoding: chunked", "", 200},
		"chunked, proved small":     {"X-Hold: 1\r\nTransfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n", 200},
		"expects to be asked first": {"X-Hold: 1\r\nExpect: 100-continue\r\nContent-Length: 1000000", "", 200},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, begun, letGo := rooms(t, web.Config{BodyLimit: mb, BodyMemory: mb})
			defer letGo()
			conn := begin(t, addr, test.head)
			if _, err := io.WriteString(conn, test.body); err != nil {
				t.Fatal(err)
			}
			if test.body != "" {
				<-begun
			} // else nothing shows when the head is read
			testenv.Eventually(t, fmt.Sprintf("another: %d", test.want), func() bool { return post(t, addr, 100_000) == test.want })
			if got := post(t, addr, 1000); got != 200 {
				t.Errorf("a small one: got %d, want 200", got)
			}
			letGo()
			_ = conn.Close()
			testenv.Eventually(t, "the room is back", func() bool { return post(t, addr, 1000_000) == 200 })
		})
	}
}

// fasthttp by itself says nothing of a client that goes between two chunks.
func TestRoomComesBackFromClientsThatWentInTheMiddle(t *testing.T) {
	app := web.New(web.Config{BodyLimit: mb, BodyMemory: mb})
	app.Post("/", sized)
	addr := serve(t, app)
	for name, part := range map[string]string{"before a chunk": "", "between chunks": "5\r\nhello\r\n", "in a chunk": "5\r\nhe"} {
		for range 3 {
			conn := begin(t, addr, "Transfer-Encoding: chunked")
			if _, err := io.WriteString(conn, part); err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
		}
		testenv.Eventually(t, name+": the room is back", func() bool { return post(t, addr, 1000_000) == 200 })
	}
}

func TestAnExpectedBodyIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	addr, begun, letGo := rooms(t, web.Config{BodyLimit: mb, BodyMemory: mb})
	defer letGo()
	conn := begin(t, addr, "X-Hold: 1\r\nContent-Length: 1000000")
	if _, err := conn.Write(make([]byte, 1000000)); err != nil {
		t.Fatal(err)
	}
	<-begun
	asking := begin(t, addr, "Expect: 100-continue\r\nContent-Length: 1000000")
	status, body := answered(t, asking) // and no 100 before it
	if status != 503 || body["code"] != "unavailable" {
		t.Errorf("got %d %v, want 503", status, body)
	}
}

func TestABodyWithoutAKnownKeyIsNotRead(t *testing.T) {
	var asked atomic.Int64
	app := web.New(web.Config{BodyLimit: mb, BodyMemory: mb, Known: func(c *fiber.Ctx) error {
		asked.Add(1)
		if web.Key(c) != "key" || c.Path() != "/" {
			return registry.ErrUnauthorized
		}
		return nil
	}})
	app.Post("/", sized)
	addr := serve(t, app)
	for name, head := range map[string]string{
		"announced":                 "Content-Length: 1000000\r\n\r\nx",
		"expects to be asked first": "Content-Length: 1000000\r\nExpect: 100-continue\r\n\r\n",
		"chunked":                   "Transfer-Encoding: chunked\r\n\r\n20000\r\n" + strings.Repeat("x", 0x20000),
	} {
		conn := connect(t, addr, "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: x\r\n"+head)
		if status, body := answered(t, conn); status != 401 || body["code"] != "unauthorized" {
			t.Errorf("%s: got %d %v, want 401", name, status, body)
		}
	}
	if got := post(t, addr, 100_000); got != 200 {
		t.Errorf("with a good key: got %d, want 200", got)
	}
	before := asked.Load()
	if got := post(t, addr, 1000); got != 200 || asked.Load() != before {
		t.Errorf("a small body: got %d and %d questions, want 200 and none", got, asked.Load()-before)
	}
}

func TestAKeyHasHalfOfTheRoom(t *testing.T) {
	t.Parallel()
	addr, begun, letGo := rooms(t, web.Config{BodyLimit: mb, BodyMemory: 4 * mb})
	defer letGo()
	for range 2 {
		conn := begin(t, addr, "X-Hold: 1\r\nContent-Length: 1000000")
		if _, err := conn.Write(make([]byte, 1000000)); err != nil {
			t.Fatal(err)
		}
		<-begun
	}
	if got := post(t, addr, 1000_000); got != 503 {
		t.Errorf("a third body of the same key: got %d, want 503", got)
	}
	other := connect(t, addr, "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: another\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat("x", 1000000))
	if status, body := answered(t, other); status != 200 {
		t.Errorf("one of another key: got %d %v, want 200", status, body)
	}
}

func TestALargeBodyKeepsUpTheLeastRate(t *testing.T) {
	t.Parallel()
	app := web.New(web.Config{BodyLimit: mb, BodyMemory: mb})
	app.Post("/", sized)
	conn := begin(t, serve(t, app), "Content-Length: 1000000")
	if _, err := conn.Write(make([]byte, 70_000)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if status, body := answered(t, conn); status != 408 || body["code"] != "request_timeout" || time.Since(began) < 5*time.Second {
		t.Errorf("got %d %v after %v, want 408 after some seconds", status, body, time.Since(began))
	}
}

// Clients that do not read what they asked for have half of the room, for some
// seconds.
func TestClientsThatDoNotReadHoldNothingForLong(t *testing.T) {
	t.Parallel()
	const size, clients = 20 * mb, 12
	app := web.New(web.Config{BodyLimit: size, BodyMemory: 4 * size})
	large := make([]byte, size)
	var after atomic.Int64
	app.Get("/", func(c *fiber.Ctx) error {
		if err := c.Send(large); err != nil {
			return err
		}
		web.AfterAnswer(c, func() { after.Add(1) })
		return nil
	})
	addr := serve(t, app)
	ask := func(key string) net.Conn {
		return connect(t, addr, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: "+key+"\r\n\r\n")
	}
	var held []net.Conn
	for range clients {
		held = append(held, ask("slow"))
	}
	testenv.Eventually(t, "what has no room is answered", func() bool { return after.Load() == clients-2 })
	for range 3 {
		resp, err := http.ReadResponse(bufio.NewReader(ask("another")), nil)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || n != size || err != nil {
			t.Errorf("a client with another key: got %d, %d bytes, %v, want 200 and %d", resp.StatusCode, n, err, size)
		}
	}
	testenv.Eventually(t, "those that do not read are cut off", func() bool { return after.Load() == clients+3 })
	whole := 0
	for _, conn := range held {
		if n, _ := io.Copy(io.Discard, conn); n > size {
			whole++
		}
	}
	if whole > 0 {
		t.Errorf("got %d whole answers, want none", whole)
	}
}

// getHolding is the status of a GET with the key, and with hold as its X-Hold, once its answer
// is read; 0 without an answer.
func getHolding(t *testing.T, addr, key, hold string) int {
	t.Helper()
	req := request(t, "GET", "http://"+addr, nil)
	req.Header.Set("Authorization", key)
	req.Header.Set("X-Hold", hold)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// An answer that gets no room costs no work, and takes none from another key.
func TestAnAnswersRoomIsClaimedBeforeItIsRead(t *testing.T) {
	t.Parallel()
	app := web.New(web.Config{BodyLimit: mb, BodyMemory: 2 * mb})
	begun, leave := make(chan struct{}), make(chan struct{})
	app.Get("/", func(c *fiber.Ctx) error {
		if err := web.ClaimAnswer(c, 900_000); err != nil {
			return err
		}
		if c.Get("X-Hold") != "" {
			begun <- struct{}{}
			<-leave
		}
		return c.Send(make([]byte, 900_000))
	})
	addr := serve(t, app)
	get := func(key, hold string) int { return getHolding(t, addr, key, hold) }
	held := make(chan int, 1)
	go func() { held <- get("one", "1") }()
	<-begun
	for key, want := range map[string]int{"one": 503, "another": 200} {
		if got := get(key, ""); got != want {
			t.Errorf("key %s: got %d, want %d", key, got, want)
		}
	}
	close(leave)
	if got := <-held; got != 200 {
		t.Errorf("the first: got %d, want 200", got)
	}
	testenv.Eventually(t, "the room is back", func() bool { return get("one", "") == 200 })
}

// What is claimed for an answer is held while the answer is written, and given back before
// if the answer will be another.
func TestAnAnswersRoomIsHeldAsLongAsItIsNeeded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		further int // a second claim
		want    int // status of another request with the key meanwhile
	}{
		"a stream":             {900_000, 503},
		"a stream of no bytes": {0, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := web.New(web.Config{BodyLimit: mb, BodyMemory: 2 * mb})
			begun, leave := make(chan struct{}), make(chan struct{})
			app.Get("/", func(c *fiber.Ctx) error {
				if err := web.ClaimAnswer(c, 900_000); err != nil {
					return err
				}
				if c.Get("X-Hold") == "" {
					return nil
				}
				if err := web.ClaimAnswer(c, tt.further); err != nil {
					return err
				}
				web.Stream(c, func() ([]byte, error) {
					close(begun)
					<-leave
					return nil, io.EOF
				}, func() {})
				return nil
			})
			addr := serve(t, app)
			get := func(hold string) int { return getHolding(t, addr, "key", hold) }
			held := make(chan int, 1)
			go func() { held <- get("1") }()
			<-begun
			if got := get(""); got != tt.want {
				t.Errorf("meanwhile: got %d, want %d", got, tt.want)
			}
			close(leave)
			<-held
			testenv.Eventually(t, "the room is back", func() bool { return get("") == 200 })
		})
	}
}

// A patient body is not refused while others have the room, nor while patient ones take turns.
func TestAPatientBodyWaitsForItsRoom(t *testing.T) {
	t.Parallel()
	addr, begun, letGo := rooms(t, web.Config{BodyLimit: mb, BodyMemory: mb, Patient: func(c *fiber.Ctx) bool { return c.Get("X-Patient") != "" }})
	defer letGo()
	send := func(conn net.Conn) {
		if _, err := conn.Write(make([]byte, 1000_000)); err != nil {
			t.Error(err)
		}
	}
	send(begin(t, addr, "X-Hold: 1\r\nContent-Length: 1000000"))
	<-begun
	var patient []net.Conn
	for range 3 {
		conn := begin(t, addr, "X-Patient: 1\r\nContent-Length: 1000000")
		go send(conn)
		patient = append(patient, conn)
	}
	if got := post(t, addr, 1000_000); got != 503 {
		t.Errorf("a body that is not patient: got %d, want 503", got)
	}
	letGo()
	for i, conn := range patient {
		if status, body := answered(t, conn); status != 200 {
			t.Errorf("patient body %d: got %d %v, want 200", i, status, body)
		}
	}
}
