package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
)

const (
	// lookEvery is the pause between two looks at the agent.
	lookEvery = 200 * time.Millisecond
	// tellEvery is the least time between two lines about how the agent is.
	tellEvery = 2 * time.Second
	// startWithin is asked for again and again while an agent starts: a log may
	// have to be read first.
	startWithin = 60 * time.Second
	// reloadWithin bounds one reading of the configuration, so that the watchdog is
	// not kept waiting.
	reloadWithin = 10 * time.Second
)

// supervised is what a supervisor needs to know of an agent.
type supervised interface {
	Status() control.Status
	Working() bool
}

// supervisor stands between the agent and whoever started it. It tells systemd how
// the agent is, where that has asked to be told (NOTIFY_SOCKET), and does what
// signals ask for:
//
//	READY=1      the ports are open and the store is admitted, or the agent is in
//	             a state that it tries to get out of by itself
//	STATUS=      the state and the lag, when changed, every 2 s at most
//	WATCHDOG=1   three times in WATCHDOG_USEC, while the status can be put together
//	             and the role's loop goes round
//	RELOADING=1  SIGHUP: the configuration is read again; READY=1 when that is done
//	STOPPING=1   the agent ends; the watchdog is kept until it has
//
// SIGUSR1 writes the status to the log.
type supervisor struct {
	agent  supervised
	reload func(context.Context) error // reads the configuration again; nil: it cannot be
	log    *slog.Logger
	notify func(text string) // to systemd

	watchdog time.Duration // how often it must hear from the agent; 0: it does not listen

	ready            bool
	line             string    // that was told last
	told, fed, asked time.Time // when it was told, the watchdog fed, time to start asked for
}

func newSupervisor(a supervised, reload func(context.Context) error, log *slog.Logger) *supervisor {
	s := &supervisor{agent: a, reload: reload, log: log}
	broken := false
	s.notify = func(text string) {
		if _, err := daemon.SdNotify(false, text); err != nil && !broken {
			broken = true
			log.Warn("systemd cannot be told how the agent is", "cause", err)
		}
	}
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("no watchdog", "cause", err)
	}
	s.watchdog = interval
	return s
}

// Run works until ctx ends, which is when the agent has ended. Stopping is closed
// when the agent begins to.
func (s *supervisor) Run(ctx context.Context, stopping <-chan struct{}) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR1)
	defer signal.Stop(signals)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-stopping:
			stopping = nil
			s.notify(daemon.SdNotifyStopping + "\nSTATUS=stopping")
			s.line = "stopping"
		case sent := <-signals:
			s.obey(ctx, sent, stopping == nil)
		case <-tick.C:
			s.look(time.Now(), stopping == nil)
		}
	}
}

// look tells what has to be told now.
func (s *supervisor) look(now time.Time, stopping bool) {
	status := s.agent.Status() // hangs where a part of the agent does
	if s.watchdog > 0 && now.Sub(s.fed) >= s.watchdog/3 && s.agent.Working() {
		s.fed = now
		s.notify(daemon.SdNotifyWatchdog)
	}
	if stopping {
		return
	}
	if !s.ready {
		if status.State == "" || status.State == state.Starting {
			if now.Sub(s.asked) >= startWithin/6 {
				s.asked = now
				s.notify("EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(startWithin.Microseconds(), 10) + "\nSTATUS=starting")
			}
			return
		}
		s.ready = true
		s.tell(now, status, daemon.SdNotifyReady+"\n")
		return
	}
	if line := status.Line(); line != s.line && now.Sub(s.told) >= tellEvery {
		s.tell(now, status, "")
	}
}

// tell sends the line about how the agent is, behind what is to be said besides.
func (s *supervisor) tell(now time.Time, status control.Status, besides string) {
	s.told, s.line = now, status.Line()
	s.notify(besides + "STATUS=" + strings.ReplaceAll(s.line, "\n", " "))
}

// obey does what a signal asks for.
func (s *supervisor) obey(ctx context.Context, sent os.Signal, stopping bool) {
	if sent == syscall.SIGUSR1 {
		s.dump()
		return
	}
	if stopping {
		return
	}
	s.notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
	if err := s.reloadNow(ctx); err != nil {
		s.log.Error("the configuration was not read again; what was in force still is", "cause", err)
	}
	if s.ready { // or else look says so when it is
		s.tell(time.Now(), s.agent.Status(), daemon.SdNotifyReady+"\n")
	}
}

var errNoReload = errors.New("this agent was not given anything that could be read again. Try: restart it")

func (s *supervisor) reloadNow(ctx context.Context) error {
	if s.reload == nil {
		return errNoReload
	}
	ctx, cancel := context.WithTimeout(ctx, reloadWithin)
	defer cancel()
	return s.reload(ctx)
}

// dump writes all that status tells to the log, and what the process takes.
func (s *supervisor) dump() {
	status, err := json.Marshal(s.agent.Status())
	if err != nil {
		s.log.Error("the state cannot be written down", "cause", err)
		return
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	s.log.Info("state", "status", string(status), "working", s.agent.Working(), "goroutines", runtime.NumGoroutine(), "heapBytes", memory.HeapAlloc)
}
