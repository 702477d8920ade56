package port

import "testing"

// Scenarios that run side by side bind their addresses some time after they got them.
func TestNoAddressIsGivenTwice(t *testing.T) {
	given := map[string]bool{}
	for range 200 {
		addresses, err := Free(20)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addresses {
			if given[a] {
				t.Fatalf("got %s again", a)
			}
			given[a] = true
		}
	}
}
