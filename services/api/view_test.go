package api

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/job"
)

func TestALargeOutputIsSentAsItIsStored(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"small": 10, "large": 100_000} {
		output := `{"text":"` + strings.Repeat("x", size) + `","output":0}`
		j := &job.Job{ID: "id", Status: job.Failed, Output: json.RawMessage(output), Error: `said "output":0`, Worker: "w"}
		want, err := json.Marshal(viewOf(j))
		if err != nil {
			t.Fatal(err)
		}
		app := fiber.New()
		app.Get("/", func(c *fiber.Ctx) error { return sendView(c, viewOf(j)) })
		resp, err := app.Test(httptest.NewRequest(http.MethodGet, "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(got) != string(want) || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: got %.200s, %v, %s, want %.200s", name, got, err, resp.Header.Get("Content-Type"), want)
		}
	}
}
