// What a build of Go does: another module, goroutines, a child, a server. The command adds the detector of races, which needs cgo.
package toolchain

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
)

func TestAnotherModule(t *testing.T) {
	// The name of RFC 4122 for this host.
	if named := uuid.NewSHA1(uuid.NameSpaceDNS, []byte("example.com")); named.String() != "cfbff0d1-9375-5685-968c-48ce8b15ae17" {
		t.Fatal(named)
	}
}

func TestGoroutines(t *testing.T) {
	var total atomic.Int64
	var group sync.WaitGroup
	for n := 1; n <= 1000; n++ {
		group.Add(1)
		go func(n int64) { defer group.Done(); total.Add(n) }(int64(n))
	}
	group.Wait()
	if total.Load() != 500500 {
		t.Fatal(total.Load())
	}
}

func TestAChild(t *testing.T) {
	if printed, err := exec.Command("echo", "child").Output(); err != nil || string(printed) != "child\n" {
		t.Fatal(string(printed), err)
	}
}

func TestAServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served") }))
	defer server.Close()
	answer, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if page, err := io.ReadAll(answer.Body); err != nil || string(page) != "served" {
		t.Fatal(string(page), err)
	}
}
