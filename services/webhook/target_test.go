package webhook

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/deliveries"
	"flightline/shared/netguard"
)

// What is between us and the network is judged as the dialer is: by the
// address that a name has at last.
func TestNoWayIn(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for c, err := listener.Accept(); err == nil; c, err = listener.Accept() {
			t.Errorf("somebody connected from %s", c.RemoteAddr())
			_ = c.Close()
		}
	}()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{cfg: Config{AllowHTTP: true, Timeout: 2 * time.Second}}
	s.client = newClient(s.cfg)
	defer s.client.CloseIdleConnections()
	for _, host := range []string{
		"127.0.0.1", "127.1", "2130706433", "0177.0.0.1", "0x7f000001", "0x7f.1", "0", "0.0.0.0", "localhost", "LOCALHOST.",
		"[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
		"10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "[fe80::1%25lo]", "[fd00:ec2::254]", "[fc00::1]", "[ff02::1]",
		"224.0.0.1", "255.255.255.255", "user:password@127.0.0.1", "\uff11\uff12\uff17.0.0.1",
	} {
		t.Run(host, func(t *testing.T) {
			got, err := s.post(t.Context(), targetOf("http://"+host+":"+port+"/?secret=1"), http.Header{}, nil)
			if err != nil || got.status != 0 || got.err == "" {
				t.Errorf("got %+v, %v, want no connection", got, err)
			}
			if strings.Contains(got.err, "password") || strings.Contains(got.err, "secret") {
				t.Errorf("got %q, want nothing secret in it", got.err)
			}
		})
	}
}

// Every form that a resolver may come up with.
func TestAddressesJudgedAtTheConnection(t *testing.T) {
	private := []string{
		"127.0.0.1", "127.255.255.254", "0.0.0.0", "10.1.2.3", "172.31.255.255", "192.168.0.1", "169.254.169.254", "100.100.100.200",
		"192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
		"::1", "::", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "64:ff9b::a9fe:a9fe",
		"2002:7f00:1::", "2001::1", "2001:db8::1", "100::1",
	}
	allowed := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")}
	tests := map[string]struct {
		networks []netip.Prefix
		address  string
		ok       bool
	}{
		"a public one":        {nil, "93.184.216.34", true},
		"a public IPv6 one":   {nil, "2606:4700::1111", true},
		"a named network":     {allowed, "10.1.2.3", true},
		"a named IPv6 one":    {allowed, "fd00:1::2", true},
		"beside a named one":  {allowed, "10.2.0.1", false},
		"loopback, not named": {allowed, "127.0.0.1", false},
	}
	for _, address := range private {
		tests[address] = struct {
			networks []netip.Prefix
			address  string
			ok       bool
		}{nil, address, false}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			network := "tcp4"
			if strings.Contains(test.address, ":") {
				network = "tcp6"
			}
			err := netguard.Dialer(test.networks, 0).Control(network, net.JoinHostPort(test.address, "443"), nil)
			if (err == nil) != test.ok || err != nil && !errors.Is(err, netguard.ErrAddress) {
				t.Errorf("got %v, want allowed %v", err, test.ok)
			}
		})
	}
}

// names is a DNS server that knows one name, with another address each time it
// is asked.
type names struct {
	conn      net.PacketConn
	addresses []netip.Addr
	asked     atomic.Int32
	all       atomic.Bool // in one answer
}

func serveNames(t *testing.T, addresses ...string) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{conn: conn}
	for _, a := range addresses {
		n.addresses = append(n.addresses, netip.MustParseAddr(a))
	}
	var wg sync.WaitGroup
	wg.Go(n.serve)
	t.Cleanup(func() { _ = conn.Close(); wg.Wait() })
	return n
}

func (n *names) serve() {
	buf := make([]byte, 512)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		end := 12 + bytes.IndexByte(buf[12:size], 0) + 5 // the header, the name, its type and class
		answer := append([]byte{buf[0], buf[1], 0x84, 0, 0, 1, 0, 0, 0, 0, 0, 0}, buf[12:end]...)
		if buf[end-3] == 1 { // A; no AAAA exists
			told := n.addresses
			if i := int(n.asked.Add(1)-1) % len(told); !n.all.Load() {
				told = told[i : i+1]
			}
			answer[7] = byte(len(told))
			for _, address := range told {
				a := address.As4()
				answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, a[0], a[1], a[2], a[3])
			}
		}
		_, _ = n.conn.WriteTo(answer, from)
	}
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

// A name whose address changes each time it is asked for: there is one look-up
// for a connection, and its address is judged, whatever an earlier one said.
func TestRebindingIsJudgedAtTheConnection(t *testing.T) {
	t.Parallel()
	good := httptest.NewServer(answerWith(200))
	defer good.Close()
	_, port, err := net.SplitHostPort(good.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n := serveNames(t, "127.0.0.1", "169.254.169.254", "10.0.0.1", "127.0.0.2")
	cfg := Config{AllowHTTP: true, Timeout: 2 * time.Second, resolver: n.resolver(), AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	s := &Service{cfg: cfg, client: newClient(cfg)}
	for i, want := range []string{"", "169.254.169.254", "10.0.0.1", "127.0.0.2"} {
		got, err := s.post(t.Context(), targetOf("http://rebind.example.:"+port+"/"), http.Header{}, nil)
		s.client.CloseIdleConnections()
		switch {
		case err != nil, int(n.asked.Load()) != i+1:
			t.Errorf("attempt %d: got %v after %d look-ups, want one for each attempt", i, err, n.asked.Load())
		case want == "" && got.status != 200:
			t.Errorf("the named address: got %+v, want an answer", got)
		case want != "" && !strings.Contains(got.err, "prohibited IP address: "+want+" "):
			t.Errorf("attempt %d: got %+v, want %s refused", i, got, want)
		}
	}
}

// A name that was public when the webhook was submitted, and an answer that has
// both: no address inside is connected to, whichever comes first or last.
func TestAPublicNameThatTurnsInwards(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer inside.Close()
	_, port, err := net.SplitHostPort(inside.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// 127.0.0.2 stands for the public address: it is allowed, and nobody listens there.
	for name, answers := range map[string][]string{"one after the other": {"127.0.0.2", "127.0.0.1", "127.0.0.1"}, "both at once": {"127.0.0.2", "127.0.0.1"}} {
		n := serveNames(t, answers...)
		n.all.Store(name == "both at once")
		cfg := Config{AllowHTTP: true, Timeout: 5 * time.Second, resolver: n.resolver(), AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}}
		s := &Service{cfg: cfg, client: newClient(cfg)}
		for range 3 {
			got, err := s.post(t.Context(), targetOf("http://turns.example.:"+port+"/"), http.Header{}, nil)
			if err != nil || got.status != 0 || got.err == "" {
				t.Errorf("%s: got %+v, %v, want no answer", name, got, err)
			}
		}
		s.client.CloseIdleConnections()
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("got %d requests inside, want none", n)
	}
}

// A receiver that is allowed redirects us to a receiver that is not, by each status and
// form of address; nothing is followed, also not to itself.
func TestARedirectLeadsNowhere(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer inside.Close()
	var first atomic.Int32
	allowed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first.Add(1)
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(status)
	}))
	defer allowed.Close()
	cfg := Config{AllowHTTP: true, Timeout: 5 * time.Second, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	s := &Service{cfg: cfg, client: newClient(cfg)}
	defer s.client.CloseIdleConnections()
	n := int32(0)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{inside.URL, "http://169.254.169.254/latest/meta-data/", "/again", "file:///etc/passwd", "//localhost/"} {
			got, err := s.post(t.Context(), targetOf(allowed.URL+"/?"+url.Values{"status": {strconv.Itoa(status)}, "to": {to}}.Encode()), http.Header{}, nil)
			if n++; err != nil || got.status != status || first.Load() != n {
				t.Errorf("%d to %s: got %+v, %v after %d requests, want the redirect as the answer", status, to, got, err, first.Load())
			}
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("got %d requests inside, want none", n)
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ origin, shown string }{
		"https://h/a?token=x#y":         {"https://h:443", "https://h:443/a"},
		"http://user:secret@H:8080/a b": {"http://h:8080", "http://h:8080/a%20b"},
		"http://[::1]/":                 {"http://[::1]:80", "http://[::1]:80/"},
		"ftp://h/":                      {"invalid:", "invalid:"},
		"http://":                       {"invalid:", "invalid:"},
	}
	for webhook, want := range tests {
		got := targetOf(webhook)
		if got.origin != want.origin || got.shown != want.shown {
			t.Errorf("%s: got %s and %s, want %+v", webhook, got.origin, got.shown, want)
		}
	}
	if err := targetOf("http://h/").allowed(Config{}); !errors.Is(err, errNoHTTP) {
		t.Errorf("http: got %v, want %v unless it is allowed", err, errNoHTTP)
	}
	if err := targetOf("https://h/").allowed(Config{}); err != nil {
		t.Errorf("https: got %v", err)
	}
}

func TestAQueryIsSentAsRequestsMayHaveIt(t *testing.T) {
	t.Parallel()
	s := newEnv(t, []time.Duration{}...)
	s.serve(lenient())
	queries := make(chan string, 1)
	r := receive(t, func(w http.ResponseWriter, req *http.Request) {
		queries <- req.URL.RawQuery
		w.WriteHeader(http.StatusOK)
	})
	log := s.over(s.complete(r.url + `?name=Ada L&city=Köln&tag=<"a">&done=100%&a%20b=c+d|e#part`))
	if len(log) != 1 || log[0].Outcome != deliveries.Delivered {
		t.Fatalf("got %+v, want one attempt that was delivered", log)
	}
	if got, want := <-queries, "name=Ada%20L&city=K%C3%B6ln&tag=%3C%22a%22%3E&done=100%&a%20b=c+d|e"; got != want {
		t.Errorf("got the query %s, want %s", got, want)
	}
}
