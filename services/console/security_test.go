package console

import (
	"testing"

	"flightline/shared/web"
)

// A link leads to no other site, however it is spelled.
func TestAPageIsWithinTheConsole(t *testing.T) {
	for given, want := range map[string]string{
		"/ui/e/echo?a=1": "/ui/e/echo?a=1", "/ui": "/ui", "": "/ui/", "/": "/ui/", "/v1/keys": "/ui/", "/uix": "/ui/",
		"https://evil.example/ui/": "/ui/", "//evil.example/ui/": "/ui/", `/\evil.example/ui/`: "/ui/", "/ui/\r\nSet-Cookie: a=b": "/ui/",
		"javascript:alert(1)": "/ui/",
	} {
		if got := localPath(given); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}

// A name that somebody may point here is refused, a number is not.
func TestHostsByWhichTheConsoleIsAskedFor(t *testing.T) {
	hosts := web.Hosts{"console.example"}
	for host, want := range map[string]bool{
		"127.0.0.1:8080": true, "10.0.0.1": true, "[::1]:8080": true, "localhost": true, "console.example:443": true,
		"evil.example": false, "127.0.0.1.evil.example": false,
	} {
		if got := allowsHost(hosts, host); got != want {
			t.Errorf("%s: got %v, want %v", host, got, want)
		}
	}
}

func TestPathsOfScreens(t *testing.T) {
	params, ok := match("/e/:endpoint/jobs/:id", "/e/echo/jobs/j1")
	if !ok || params["endpoint"] != "echo" || params["id"] != "j1" {
		t.Errorf("got %v, %v", params, ok)
	}
	for _, path := range []string{"/e//jobs/j1", "/e/echo/jobs", "/e/echo/jobs/j1/x"} {
		if _, ok := match("/e/:endpoint/jobs/:id", path); ok {
			t.Errorf("%s matches", path)
		}
	}
}
