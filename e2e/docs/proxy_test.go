package docs

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gofiber/fiber/v2"

	"flightline/e2e/proxy"
)

// Behind the proxy of roles, each route is answered by the role that has it.
func TestTheProxyOfRolesKnowsEachRoute(t *testing.T) {
	address := startRolesProxy(t)
	paths := map[string]string{"/": "api", "/healthz": "api", "/readyz": "api", "/openapi.json": "api"}
	for _, path := range []string{"/ui", "/ui/", "/ui/sign-in", "/ui/e/echo/jobs/1/stream"} {
		paths[path] = "console"
	}
	for name, role := range start(t).roles {
		app := fiber.New()
		role.Routes(app)
		for _, r := range app.GetRoutes(true) {
			paths[concrete(r.Path)] = name
		}
	}
	for path, want := range paths {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want the role %s", path, got, err, want)
		}
	}
}

// startRolesProxy starts nginx with docs/proxy/nginx-roles.conf, before servers that answer with
// the name of their role, and returns its address.
func startRolesProxy(t *testing.T) (address string) {
	t.Helper()
	var words []string
	for role, port := range map[string]string{"api": "8080", "control": "8081", "gateway": "8082", "console": "8086"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, role) }))
		t.Cleanup(server.Close)
		words = append(words, "127.0.0.1:"+port, server.Listener.Addr().String())
	}
	return proxy.Start(t, "nginx", "nginx-roles.conf", words...)
}
