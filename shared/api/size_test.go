package api

import "testing"

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 400 << 20: "400 MiB", 16_400_000_000: "15.3 GiB", 5 << 40: "5.0 TiB", 5 << 50: "5120 TiB",
	} {
		if got := Size(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}
