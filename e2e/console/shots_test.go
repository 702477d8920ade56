package console

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"flightline/shared/client"
	"flightline/shared/job"
)

// TestPictures takes pictures of all screens into the folder that FLIGHTLINE_CONSOLE_SHOTS
// names, for people to look at: `task shots`. One of them, console.png, is that of the
// README.
func TestPictures(t *testing.T) {
	if os.Getenv(shots) == "" { //nolint:forbidigo // tests have no main to hand them their settings
		t.Skip(shots + " names no folder for pictures")
	}
	s := newSite(t)
	failed := scene(t, s)
	p := s.signIn(t, s.key)
	pages := []struct{ name, path string }{
		{"overview", "/ui/"},
		{"endpoint", "/ui/e/render"},
		{"jobs", "/ui/e/render/jobs"},
		{"job", "/ui/e/render/jobs/" + string(failed)},
		{"try", "/ui/e/render/try"},
		{"failures", "/ui/failures"},
		{"workers", "/ui/workers"},
		{"worker", "/ui/workers/render-gpu-1?endpoint=render"},
		{"machines", "/ui/machines"},
		{"scaling", "/ui/e/transcribe/scaling"},
		{"webhooks", "/ui/e/render/webhooks"},
		{"events", "/ui/events"},
		{"system", "/ui/system"},
	}
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		for _, width := range []int64{1440, 380} {
			p.width(width)
			for _, page := range pages {
				p.visit(page.path)
				p.holds("the page is live or complete", func() bool { return p.count("main h1") == 1 })
				p.fits()
				p.keep(fmt.Sprintf("%s-%s-%d", page.name, scheme, width))
			}
		}
	}
	p.scheme("light")
	p.do("make room for the README's picture", chromedp.EmulateViewport(1120, 640))
	p.visit("/ui/")
	p.reads("main", "render")
	p.readme()
}

// scene makes something to look at, and returns a job that failed and was tried again.
func scene(t *testing.T, s *site) (failed job.ID) {
	t.Helper()
	url := receiver(t, func() int { return 200 })
	gone := receiver(t, func() int { return 503 })
	for _, id := range []string{"render", "chat", "embed"} {
		s.endpoint(t, client.EndpointSpec{ID: id, WebhookRetries: []time.Duration{time.Second}})
		s.work(t, id, id+"-gpu-1", 4)
	}
	s.work(t, "render", "render-gpu-2", 4)
	if _, err := s.client.Endpoints().Create(t.Context(), client.EndpointSpec{
		ID: "transcribe", WorkersMax: new(2), Fleet: client.FleetSpec{Driver: "process", Command: []string{"sh", "-c", "exit 3"}},
	}); err != nil {
		t.Fatal(err)
	}
	var ids []job.ID
	for n := range 60 {
		ids = append(ids, s.run(t, "render", order{Text: fmt.Sprint("a lighthouse, take ", n), Emits: n % 3}, map[int]string{0: url, 1: gone}[n%20]))
		s.run(t, "chat", order{Text: "hello", Emits: 3}, "")
		s.run(t, "embed", order{Text: "a sentence"}, "")
	}
	for n := range 9 {
		failed = s.run(t, "render", order{Fail: fmt.Sprintf("CUDA out of memory: tried to allocate %d.%d GiB on GPU %d", n+2, n, n%2)}, "")
	}
	for n := range 4 {
		s.run(t, "chat", order{Fail: fmt.Sprintf("KeyError: 'messages'\n  File \"/app/handler.py\", line %d", n+10)}, "")
	}
	for range 3 {
		s.run(t, "render", order{Hold: true}, "")
		s.run(t, "transcribe", order{}, "")
	}
	for _, id := range append(ids, failed) {
		s.ended(t, "render", id)
	}
	if _, err := s.client.Retry(t.Context(), "render", failed); err != nil {
		t.Fatal(err)
	}
	s.ended(t, "render", failed)
	eventually(t, "the failures are counted", func() bool {
		groups, err := s.client.Failures(t.Context(), "", time.Time{}, time.Time{})
		return err == nil && len(groups) == 2
	})
	return failed
}

// readme writes the README's picture: what the window shows, in at most 256 colours.
func (p *page) readme() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, soon)
	defer cancel()
	taken, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	from, err := png.Decode(bytes.NewReader(taken))
	if err != nil {
		p.t.Fatal(err)
	}
	var to bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&to, fewColours(from)); err != nil {
		p.t.Fatal(err)
	}
	const most = 80_000
	if to.Len() > most {
		p.t.Errorf("the README's picture has %d bytes, want %d at most", to.Len(), most)
	}
	if err := os.WriteFile(filepath.Join(os.Getenv(shots), "console.png"), to.Bytes(), 0o600); err != nil { //nolint:forbidigo // as above
		p.t.Fatal(err)
	}
}

// fewColours keeps the 256 most frequent colours; others become the nearest of them.
func fewColours(from image.Image) *image.Paletted {
	counts := map[color.Color]int{}
	at := from.Bounds()
	for y := at.Min.Y; y < at.Max.Y; y++ {
		for x := at.Min.X; x < at.Max.X; x++ {
			counts[color.RGBAModel.Convert(from.At(x, y))]++
		}
	}
	var all color.Palette
	for c := range counts {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.Color) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	to := image.NewPaletted(at, all[:min(len(all), 256)])
	nearest := map[color.Color]uint8{}
	for y := at.Min.Y; y < at.Max.Y; y++ {
		for x := at.Min.X; x < at.Max.X; x++ {
			c := color.RGBAModel.Convert(from.At(x, y))
			index, known := nearest[c]
			if !known {
				index = uint8(to.Palette.Index(c)) //nolint:gosec // of 256
				nearest[c] = index
			}
			to.SetColorIndex(x, y, index)
		}
	}
	return to
}
