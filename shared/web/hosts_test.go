package web_test

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/web"
)

func TestHostsAllow(t *testing.T) {
	hosts := web.Hosts{"flightline.test", "192.0.2.7"}
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:8080": true, "127.9.9.9": true, "[::1]:8080": true, "[::1]": true, "::1": true, "[::ffff:127.0.0.1]": true,
		"localhost": true, "LocalHost:1": true, "localhost.": true, "app.localhost": true, "host.docker.internal:8080": true,
		"flightline.test": true, "Flightline.Test:80": true, "192.0.2.7:80": true, "": true,
		"evil.example": false, "evil.example:8080": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false,
		"192.0.2.8": false, "0.0.0.0": false, "xlocalhost": false, "flightline.test.evil.example": false,
	} {
		if got := hosts.Allow(host); got != want {
			t.Errorf("%q: got %v, want %v", host, got, want)
		}
		if !web.Hosts(nil).Allow(host) {
			t.Errorf("%q: got it refused, want any name without hosts", host)
		}
	}
}

func TestAnotherHostIsRefused(t *testing.T) {
	t.Parallel()
	app := web.New(web.Config{Hosts: web.Hosts{}})
	app.Get("/", func(c *fiber.Ctx) error { return c.SendStatus(fiber.StatusNoContent) })
	addr := serve(t, app)
	for host, want := range map[string]int{"": 204, "localhost": 204, "evil.example": 400} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = res.Body.Close(); res.StatusCode != want {
			t.Errorf("%q: got %d, want %d", host, res.StatusCode, want)
		}
	}
}
