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

func TestAnInputIsSentAsItWasGiven(t *testing.T) {
	s := start(t)
	const input = `{"html":"<b>this & that</b>"}`
	id := s.do("POST", "/ep/run", `{"input":`+input+`}`).id()
	if got, want := s.do("GET", "/ep/input/"+id, "").raw, `{"id":"`+id+`","status":"IN_QUEUE","input":`+input+`}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAnOutputIsSentAsItIsStored(t *testing.T) {
	t.Parallel()
	for name, output := range map[string]string{
		"none": "", "small": `{"text":"<x> & y","output":0}`, "large": `{"text":"` + strings.Repeat("<x>", 100_000) + `","output":0}`,
	} {
		want := `{"delayTime":0,"error":"said \"output\":0","executionTime":0,"id":"id","output":` + output + `,"status":"FAILED","workerId":"w"}`
		if output == "" {
			want = strings.Replace(want, `"output":,`, "", 1)
		}
		j := &job.Job{ID: "id", Status: job.Failed, Output: json.RawMessage(output), Error: `said "output":0`, Worker: "w"}
		app := fiber.New()
		app.Get("/", func(c *fiber.Ctx) error { return sendView(c, viewOf(j)) })
		resp, err := app.Test(httptest.NewRequest(http.MethodGet, "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(got) != want || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: got %.200s, %v, %s, want %.200s", name, got, err, resp.Header.Get("Content-Type"), want)
		}
	}
}
