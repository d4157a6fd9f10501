package stock_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire/ha"
	"github.com/haagent/haagent/wire/remoting"
)

func TestBroker_RealBrokersTellTheTruthAboutTheirLog(t *testing.T) {
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		ns := brokertest.StartNameServer(t, v)
		master := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr})
		b := newClient(t, master.Addr(), stock.BrokerOptions{})
		c, err := b.Config(t.Context())
		if err != nil || c.BrokerName != "broker-a" || c.Role != "ASYNC_MASTER" || c.StorePathCommitLog != filepath.Join(master.Dir(), "commitlog") {
			t.Fatalf("configuration %+v, %v", c, err)
		}
		sent := brokertest.StartDriver(t, v, ns.Addr).Send(t, brokertest.SendSpec{Topic: "orders", Count: 20})
		log, err := os.ReadFile(filepath.Join(master.Dir(), "commitlog", "00000000000000000000"))
		if err != nil {
			t.Fatal(err)
		}
		info, err := b.RuntimeInfo(t.Context())
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for errors.Is(err, stock.ErrNotReady) { // in its first second a broker cannot tell
			<-tick.C
			info, err = b.RuntimeInfo(t.Context())
		}
		if err != nil || info.MinOffset != 0 || info.MaxOffset <= sent[len(sent)-1].PhyOffset || info.Version == "" {
			t.Fatalf("%d to %d, %q, %v", info.MinOffset, info.MaxOffset, info.Version, err)
		}
		for _, s := range sent {
			m, err := b.ViewMessage(t.Context(), s.PhyOffset)
			if err != nil || !bytes.Equal(m, log[s.PhyOffset:][:len(m)]) {
				t.Errorf("message at %d: %d bytes, %v", s.PhyOffset, len(m), err)
			}
			if _, err := b.ViewMessage(t.Context(), s.PhyOffset+1); !errors.Is(err, stock.ErrNoMessage) {
				t.Errorf("inside the message at %d: %v", s.PhyOffset, err)
			}
		}
		if _, err := b.ViewMessage(t.Context(), info.MaxOffset); !errors.Is(err, stock.ErrNoMessage) {
			t.Errorf("at the end: %v", err)
		}
		// 4.5 does not answer what it does not know.
		if _, err := b.Raw(t.Context(), 9999, nil, nil); err == nil || v.AtLeast("4.9.0") && !errors.Is(err, stock.ErrNotSupported) {
			t.Errorf("unknown request: %v", err)
		}
	})
}

// A peer on the HA port that never reports more than 1 keeps a synchronous
// master of 4.9.7 waiting. Requests that went to the HA port by mistake must not
// change that; the same requests without our guard do, which proves the test.
func TestI3_AMisdirectedRequestDoesNotConfirmAMastersMessages(t *testing.T) {
	const v = brokertest.V497
	ns := brokertest.StartNameServer(t, v)
	master := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr, Role: "SYNC_MASTER"})
	driver := brokertest.StartDriver(t, v, ns.Addr)

	slave, err := net.Dial("tcp", master.HAAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	if _, err := slave.Write(ha.AppendReport(nil, 1)); err != nil {
		t.Fatal(err)
	}
	status := func() string {
		t.Helper()
		return driver.Send(t, brokertest.SendSpec{Topic: "orders"})[0].Status
	}

	misdirected := newClient(t, master.HAAddr(), stock.BrokerOptions{})
	if _, err := misdirected.Config(t.Context()); err == nil {
		t.Fatal("the HA port answered a request")
	}
	if got := status(); got != brokertest.StatusFlushSlave {
		t.Errorf("after a guarded request: %s", got)
	}

	secured := newClient(t, master.HAAddr(), stock.BrokerOptions{TLS: &stock.BrokerTLS{Verify: stock.VerifyNone}})
	if _, err := secured.Config(t.Context()); err == nil {
		t.Fatal("the HA port answered a request over TLS")
	}
	if got := status(); got != brokertest.StatusFlushSlave {
		t.Errorf("after a request over TLS: %s", got)
	}

	bare, err := remoting.Encode(remoting.NewRequest(remoting.GetBrokerConfig, nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", master.HAAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(bare); err != nil {
		t.Fatal(err)
	}
	if got := status(); got != brokertest.StatusOK {
		t.Errorf("after a bare request: %s; the test proves nothing", got)
	}
}
