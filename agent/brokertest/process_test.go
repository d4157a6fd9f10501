package brokertest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTryStartBroker_TellsWhy starts a broker on a port that is taken: the error
// comes with the broker's own words.
func TestTryStartBroker_TellsWhy(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := TryStartBroker(t, BrokerOptions{Version: V497, Properties: map[string]string{"listenPort": port}})
	if err == nil || b == nil || b.Running() {
		t.Fatalf("a broker on a taken port: %v", err)
	}
	for _, want := range []string{"4.9.7", "Address already in use", b.Dir()} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

// TestDriver_SurvivesAnError gives the driver a command that it does not know;
// the next one works all the same.
func TestDriver_SurvivesAnError(t *testing.T) {
	t.Parallel()
	v := Versions()[0]
	ns := StartNameServer(t, v)
	d := StartDriver(t, v, ns.Addr)
	if err := d.call("dance", nil, nil); err == nil || !strings.Contains(err.Error(), "unknown operation dance") {
		t.Errorf("an unknown command gives %v", err)
	}
	sent := d.Send(t, SendSpec{Topic: "nowhere", Count: 2})
	if n := Statuses(sent); n[StatusError] != 2 || sent[0].Err == "" || sent[0].Stored() || sent[0].Placed() {
		t.Errorf("sends without a broker are %+v", sent)
	}
	wrong(t, Diff(sent, nil))
	ns.Kill()
	if err := d.process.kill(); err != nil {
		t.Fatal(err)
	}
	<-d.read
	if err := d.call("offsets", nil, nil); err == nil || !strings.Contains(err.Error(), "driver answers no more") {
		t.Errorf("a dead driver gives %v", err)
	}
}

// holdVariable makes TestHoldNameServer the whole life of a process of its own.
const holdVariable = "BROKERTEST_HOLD"

// TestHoldNameServer is what TestProcesses_DieWithTheTest runs and kills.
func TestHoldNameServer(t *testing.T) {
	if os.Getenv(holdVariable) == "" {
		return
	}
	ns := StartNameServer(t, V497)
	fmt.Println(ns.Addr)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil { // until killed
		t.Error(err)
	}
}

// TestProcesses_DieWithTheTest kills a test process, which then has no time to
// clean up, and sees its name server go all the same.
func TestProcesses_DieWithTheTest(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHoldNameServer$")
	cmd.Env = append(os.Environ(), holdVariable+"=1", "TMPDIR="+t.TempDir())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, readErr := bufio.NewReader(stdout).ReadString('\n')
	addr := strings.TrimSpace(line)
	_, aliveErr := request(t.Context(), plainly(addr), clusterInfo, nil)
	if err := errors.Join(cmd.Process.Kill(), stdin.Close()); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the killed process ended well")
	}
	if readErr != nil || aliveErr != nil {
		t.Fatalf("the name server at %q: %v, %v", addr, readErr, aliveErr)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		if _, err := request(t.Context(), plainly(addr), clusterInfo, nil); errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the name server outlives the process that started it")
		}
	}
}
