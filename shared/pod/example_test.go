package pod_test

import (
	"fmt"

	"flightline/shared/pod"
)

// A status changes by the table of transitions only.
func ExampleStatus_Next() {
	next, err := pod.Running.Next(pod.Stop)
	fmt.Println(next, err)
	_, err = pod.Terminated.Next(pod.Start)
	fmt.Println(err)
	// Output:
	// EXITED <nil>
	// pod: cannot start while TERMINATED
}

// Secrets are hidden by their name, by their form, and where another value repeats them.
func ExampleRedact() {
	env := pod.Redact(map[string]string{
		"MODEL": "small", "HF_TOKEN": "hf_0123456789", "URL": "https://me:secret@models.example",
	})
	fmt.Println(env["MODEL"], env["HF_TOKEN"], env["URL"])
	// Output: small *** ***
}
