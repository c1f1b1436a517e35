#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Energy and clocks of simulated devices whose power is known.

usage: test_energy.py LIBRARY PROGRAMS SIMULATION
"""

import re
import unittest

import simulated

IDLE, BUSY = 100.0, 300.0  # W, without a kernel and with one
FUNCTIONS = {"Energy (J)": "nvmlDeviceGetTotalEnergyConsumption", "SM Clock (MHz)": "nvmlDeviceGetClockInfo",
             "Temperature Max (C)": "nvmlDeviceGetTemperature", "Power Readings (W)": "nvmlDeviceGetPowerUsage",
             "Held Down (%)": "nvmlDeviceGetCurrentClocksEventReasons", "SM Clock Highest (MHz)": "nvmlDeviceGetMaxClockInfo"}
NOT_SUPPORTED, FUNCTION_NOT_FOUND = 3, 13


def kernels(words, count, pause=20):
    """Kernels of 50 ms, each of which ends before the next begins."""
    return f"duration:k:50000000 loop:{count} [ kernel:k:1 sync {words} sleep:{pause} ]"


COUNTER = "nvmlDeviceGetTotalEnergyConsumption"
# The counter updates until after the window's end.
AFTER = "sleep:150"
# A window long enough for its energy to be known on a machine that is slow to read.
TEXT = f"kernel:k:1 sync start {kernels('', 40)} stop {AFTER}"


def readings(count):
    """Waits until clocks have been read that often."""
    return f"until_calls:nvmlDeviceGetCurrentClocksEventReasons:{count}"


class EnergyTest(simulated.SimulatedTest):
    # The lowest limit: twice the limit is hardly more than the power used, which reduces the uncertainty of the time until a busy machine
    # takes the first reading.
    def run_it(self, text=TEXT, power="step_us=20000,busy_mw=300000,limit_mw=160000", faults=(), devices=1, **options):
        return self.script(text, env={"CUDASIM_POWER": power} if power else None, faults=faults, devices=devices, **{"WINDOW": "api", **options})

    def windows(self, done):
        return [row for row in done.out.rows("energy_sum.csv") if row["Of"] == "window"]

    def used(self, done, device=0, begin=None, end=None):
        """Energy that the simulated device used in the first window, by the simulation's own record."""
        run = done.out.run
        base, (window, *_) = run["time_zero"]["clock_monotonic_ns"], run["windows"]
        begin, end = begin or base + window["start_ns"], end or base + window["end_ns"]
        spans = [(max(start, begin), min(until, end)) for kind, _, on, _, _, start, until in done.device_work()
                 if kind == "kernel" and on == device and until > begin and start < end]
        return ((end - begin) * IDLE + self.union(spans) * (BUSY - IDLE)) / 1e9

    def check_energy(self, done, row, truth):
        joules, error = float(row["Energy (J)"]), float(row["± Energy (J)"])
        self.assertLessEqual(abs(joules - truth), error + 0.002, f"{joules} ± {error}, truly {truth}")
        self.assertLessEqual(error, joules / 3 + 0.001)
        self.assertAlmostEqual(float(row["Power (W)"]), joules / (int(row["Duration (ns)"]) / 1e9), delta=0.1)
        return joules, error

    def check_two_windows(self, done):
        base = done.out.run["time_zero"]["clock_monotonic_ns"]
        rows = self.windows(done)
        self.assertEqual(len(rows), 2)
        for row in rows:
            begin = base + int(row["Start (ns)"])
            self.check_energy(done, row, self.used(done, begin=begin, end=begin + int(row["Duration (ns)"])))


class Energy(EnergyTest):
    def test_a_window(self):
        done = self.run_it(SUMMARY="stderr")
        (row,) = self.windows(done)
        self.check_energy(done, row, self.used(done))
        self.assertIn("    energy: ", done.stderr)
        self.assertIn("SM clock 1755MHz of at most 1980", done.stderr)
        energy = done.out.run["energy"]
        (device,) = energy["devices"]
        self.assertEqual((device["missing"], device["counter_resets"], device["power_limit_mw"], device["max_sm_clock_mhz"]), ([], 0, 160000, 1980))
        self.assertGreater(device["energy_readings"], 5)
        self.assertEqual([row[column] for column in ("SM Clock (MHz)", "SM Clock Min (MHz)", "Memory Clock (MHz)", "Memory Clock Min (MHz)",
                                                     "Temperature Max (C)", "Held Down (%)")], ["1755.0", "1755", "2619.0", "2619", "45", "0.0"])
        self.check_unharmed(done, TEXT)

    def test_prometheus(self):
        done = self.run_it(f"fault:clock_reasons:4 {TEXT}", PROM="metrics.prom")
        (row,) = self.windows(done)
        text = (done.work / "metrics.prom").read_text(encoding="utf-8")
        found = {name: float(value) for name, value in re.findall(r"^libinject_gpu_(energy_joules|power_watts){[^}]*} (\S+)$", text, re.MULTILINE)}
        self.assertAlmostEqual(found["energy_joules"], float(row["Energy (J)"]), delta=0.001)
        self.assertAlmostEqual(found["power_watts"], float(row["Power (W)"]), delta=0.06)
        held = dict(re.findall(r'^libinject_gpu_clocks_held_down_ratio{[^}]*by="(\w+)"[^}]*} (\S+)$', text, re.MULTILINE))
        self.assertEqual(held, {"any": "1", "power": "1", "heat": "0", "hardware": "0"})

    def test_the_step_that_is_found_is_the_counters(self):
        for step in (20, 50, 100):
            text = f"kernel:k:1 sync start {kernels('', 10)} until_more_calls:{COUNTER}:40 stop"
            (device,) = self.run_it(text, power=f"step_us={step * 1000},busy_mw=300000").out.run["energy"]["devices"]
            # Missing if the machine was too slow to tell.
            if "counter_step_ns" in device:
                self.assertGreater(device["counter_step_ns"], step * 0.5e6)
                self.assertLess(device["counter_step_ns"], step * 2.5e6)

    def test_a_step_that_was_never_seen(self):
        # Each call takes as long as ten updates.
        (device,) = self.run_it(f"kernel:k:1 sync start {kernels('', 5)} stop", power="step_us=1000,energy_cost_us=10000").out.run["energy"]["devices"]
        self.assertNotIn("counter_step_ns", device)

    def test_iterations_long_enough(self):
        text = f"kernel:k:1 sync start duration:k:700000000 loop:14 [ kernel:k:1 sync sleep:200 ] stop {AFTER}"
        done = self.run_it(text, BATCH="8")
        base = done.out.run["time_zero"]["clock_monotonic_ns"]
        rows = [row for row in done.out.rows("energy_sum.csv") if row["Of"] == "iteration"]
        self.assertEqual([row["Iteration"] for row in rows], [str(number) for number in range(len(rows))])
        known = [row for row in rows if row["Energy (J)"]]
        self.assertTrue(known, rows)
        for row in known:
            begin = base + int(row["Start (ns)"])
            self.check_energy(done, row, self.used(done, begin=begin, end=begin + int(row["Duration (ns)"])))
        (window,) = self.windows(done)
        self.check_energy(done, window, self.used(done))

    def test_iterations_that_are_too_short(self):
        done = self.run_it(kernels_text := f"kernel:k:1 sync start {kernels('', 20, 1)} stop {AFTER}", power="step_us=100000", BATCH="8")
        for row in done.out.rows("energy_sum.csv"):
            if row["Of"] == "iteration":
                self.assertEqual((row["Energy (J)"], row["± Energy (J)"], row["Power (W)"], row["Energy per Sample (J)"]), ("", "", "", ""), kernels_text)

    def test_a_window_that_is_too_short(self):
        done = self.run_it(f"start kernel:k:1 sync stop {AFTER}")
        (row,) = self.windows(done)
        self.assertEqual((row["Energy (J)"], row["± Energy (J)"], row["Power (W)"]), ("", "", ""))

    def test_energy_per_sample(self):
        done = self.run_it(BATCH="8")
        (row,) = self.windows(done)
        parts = [row for row in done.out.rows("iteration_sum.csv") if row["Device"] == "all" and row["Complete"] == "1"]
        base = done.out.run["time_zero"]["clock_monotonic_ns"]
        begin = base + int(parts[0]["Start (ns)"])
        end = base + int(parts[-1]["Start (ns)"]) + int(parts[-1]["Duration (ns)"])
        truth = self.used(done, begin=begin, end=end) / (8 * len(parts))
        self.assertAlmostEqual(float(row["Energy per Sample (J)"]), truth, delta=truth / 3)

    def test_energy_per_unit(self):
        """From the units reported for each iteration."""
        steps = " ".join(f"units:{100 + i} kernel:k:1 sync sleep:200" for i in range(14))
        done = self.run_it(f"kernel:k:1 sync start duration:k:700000000 {steps} stop {AFTER}", SUMMARY="summary")
        parts = {row["Iteration"]: row for row in done.out.rows("iteration_sum.csv") if row["Device"] == "all" and row["Complete"] == "1"}
        self.assertEqual({number: row["Units"] for number, row in parts.items()}, {str(number): str(100 + number) for number in range(len(parts))})
        known = [row for row in done.out.rows("energy_sum.csv") if row["Of"] == "iteration" and row["Energy (J)"]]
        self.assertTrue(known)
        for row in known:
            if row["Iteration"] in parts:
                # Both are rounded.
                self.assertAlmostEqual(float(row["Energy per Unit (J)"]), float(row["Energy (J)"]) / float(parts[row["Iteration"]]["Units"]), delta=0.001)
            else:
                self.assertEqual(row["Energy per Unit (J)"], "")
            self.assertEqual(row["Energy per Sample (J)"], "")
        (window,) = self.windows(done)
        base = done.out.run["time_zero"]["clock_monotonic_ns"]
        rows = list(parts.values())
        truth = self.used(done, begin=base + int(rows[0]["Start (ns)"]), end=base + int(rows[-1]["Start (ns)"]) + int(rows[-1]["Duration (ns)"]))
        truth /= sum(float(row["Units"]) for row in rows)
        self.assertAlmostEqual(float(window["Energy per Unit (J)"]), truth, delta=truth / 3)
        self.assertIn(f", {float(window['Energy per Unit (J)']):.3f}J a unit", (done.work / "summary").read_text(encoding="utf-8"))

    def test_a_long_pause(self):
        # No pause between the kernels.
        queued = "loop:{} [ kernel:k:1 ] sync"
        text = f"duration:k:50000000 kernel:k:1 sync start {queued.format(20)} sleep:6000 {queued.format(5)} stop {AFTER}"
        done = self.run_it(text)
        (row,) = self.windows(done)
        self.check_energy(done, row, self.used(done))
        base, (window,) = done.out.run["time_zero"]["clock_monotonic_ns"], done.out.run["windows"]
        begin, end = base + window["start_ns"], base + window["end_ns"]
        busy = self.union([(max(start, begin), min(until, end)) for kind, _, _, _, _, start, until in done.device_work()
                           if kind == "kernel" and until > begin])
        truth = (end - begin - busy) * IDLE / 1e9
        self.assertLessEqual(abs(float(row["Idle Energy (J)"]) - truth), float(row["± Idle Energy (J)"]) + 0.002)

    def test_a_pause_in_which_earlier_work_runs_on_another_stream(self):
        done = self.run_it(f"kernel:w:1 sync duration:k:50000000 duration:long:2000000000 kernel:long:1:1 start kernel:k:1:2 stream_sync:2 sleep:1800 "
                           f"kernel:k:1:2 stream_sync:2 stop sync {AFTER}")
        (row,) = self.windows(done)
        self.check_energy(done, row, self.used(done))
        self.assertEqual((row["Idle Energy (J)"], row["Idle Energy (%)"]), ("", ""))

    def test_devices_that_the_program_uses(self):
        done = self.run_it(f"kernel:k:1 device:1 kernel:k:1 sync device:0 start {kernels('', 40)} stop {AFTER}", devices=3)
        rows = {row["Device"]: row for row in self.windows(done)}
        self.assertEqual(set(rows), {"0", "1"})
        for device, row in rows.items():
            self.check_energy(done, row, self.used(done, int(device)))

    def test_a_device_whose_context_comes_late(self):
        done = self.run_it(f"device_count sleep:1500 device:1 {kernels('', 40)} {AFTER}", devices=3, WINDOW="always")
        self.assertEqual({row["Device"] for row in self.windows(done)}, {"1"})

    def test_a_device_that_comes_into_use_between_windows(self):
        one = f"start {kernels('', 30)} sleep:1500 stop"
        done = self.run_it(f"kernel:k:1 sync {one} sleep:1500 device:1 kernel:k:1 sync {one} {AFTER}", devices=2)
        self.assertEqual([(row["Window"], row["Device"]) for row in self.windows(done) if row["Device"] == "1" and row["Energy (J)"]][-1:], [("2", "1")])

    def test_several_windows(self):
        done = self.run_it(f"kernel:k:1 sync loop:2 [ start {kernels('', 30)} stop sleep:100 ] {AFTER}")
        self.check_two_windows(done)

    def test_a_window_that_ends_with_the_program(self):
        # Read once since it began. The program's end waits for that reading.
        done = self.run_it(f"kernel:k:1 sync start until_more_calls:{COUNTER}:2 {kernels('', 60)}")
        (row,) = self.windows(done)
        self.check_energy(done, row, self.used(done))

    def test_the_last_reading_before_the_programs_end_was_long_ago(self):
        # Two at the window's beginning and one at its end.
        done = self.run_it(f"kernel:k:1 sync start until_more_calls:{COUNTER}:2 {kernels('', 60)}",
                           power="step_us=100000,busy_mw=300000,limit_mw=160000,energy_cost_us=4000")
        (row,) = self.windows(done)
        self.check_energy(done, row, self.used(done))
        self.assertLess(done.out.run["energy"]["devices"][0]["energy_readings"], 8)


class Faults(EnergyTest):
    def test_clocks_held_down(self):
        for bits, held in ((0x4, {"power"}), (0x20, {"heat"}), (0x8, {"hardware"}), (0x48, {"heat", "hardware"}), (0x88, {"power", "hardware"}),
                           (0x1, set()), (0x2, set()), (0x0, set())):
            done = self.run_it(f"fault:sm_clock:990 fault:clock_reasons:{bits} kernel:k:1 sync start {kernels('', 10)} {readings(20)} stop", SUMMARY="stderr")
            (row,) = self.windows(done)
            (diagnosis,) = done.out.run["diagnosis"]
            for name in ("power", "heat", "hardware"):
                share = float(row[f"Held by {name.capitalize()} (%)"])
                self.assertEqual(share, 100 * (name in held), (bits, name))
            self.assertEqual("clocks throttled" in done.stderr, bool(held), bits)
            self.assertEqual("clocks" in diagnosis, bool(held))
            if held:
                # At half of the highest clock, at most half of the time.
                self.assertEqual((row["Held Down (%)"], row["Held Cost Bound (%)"]), ("100.0", "50.0"))
                self.assertIn(": SM clock then 990 MHz on average, of at most 1980; this costs at most 50.0% of the time", diagnosis["clocks"])

    def test_held_down_for_a_part_of_the_time(self):
        done = self.run_it(f"kernel:k:1 sync start {kernels('', 5)} {readings(10)} fault:clock_reasons:4 sleep:2000 fault:clock_reasons:0 "
                           f"{readings(60)} stop")
        (row,) = self.windows(done)
        # To within the readings at both ends, which are late on a busy machine; one that was on its way may have the flags from before.
        held = float(row["Held Down (%)"]) / 100 * int(row["Duration (ns)"]) / 1e9
        self.assertTrue(1.6 < held < 2.6, (held, row["Clock Readings"]))

    def test_what_the_driver_refuses(self):
        for column, function in FUNCTIONS.items():
            for code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                # Another function of the same readings shows that there were enough.
                waits = f"until_calls:nvmlDeviceGet{'PowerUsage' if function.endswith('Temperature') else 'Temperature'}:10"
                done = self.run_it(f"kernel:k:1 sync start {kernels('', 5)} {waits} stop", faults=f"api_fail={function}:{code}")
                (row,) = self.windows(done)
                self.assertEqual(row[column], "", function)
                (device,) = done.out.run["energy"]["devices"]
                self.assertTrue(any(name.startswith(function) for name in device["missing"]), device["missing"])
                others = [row[other] for other in FUNCTIONS if other not in (column, "Energy (J)")]
                self.assertNotIn("", others, (function, others))
                # It is not called forever.
                self.assertLess(done.simulated_calls()[function], 20)

    def test_no_limit(self):
        done = self.run_it(faults=f"api_fail=nvmlDeviceGetEnforcedPowerLimit:{NOT_SUPPORTED}")
        (row,) = self.windows(done)
        # 10 kW would be possible, which is too much uncertainty at the edges of so short a window.
        self.assertEqual(row["SM Clock (MHz)"], "1755.0")
        if row["Energy (J)"]:
            self.check_energy(done, row, self.used(done))

    def test_nothing_at_all(self):
        done = self.run_it(power=None, SUMMARY="stderr")
        self.assertNotIn("energy_sum.csv", done.out.files())
        self.assertNotIn("energy", done.out.run)
        self.assertNotIn("energy:", done.stderr)
        self.assertLess(done.simulated_calls()["nvmlDeviceGetTotalEnergyConsumption"], 20)
        self.assertEqual(done.warnings(), [])

    def test_a_call_that_fails_now_and_then(self):
        done = self.run_it(faults="api_fail=nvmlDeviceGetTotalEnergyConsumption:999:4:2")
        (row,) = self.windows(done)
        self.check_energy(done, row, self.used(done))

    def test_a_call_that_fails_three_times_in_a_row(self):
        """Nothing is shown for the window, most of which it does not cover. It is called again in the next one."""
        reasons, more = "nvmlDeviceGetCurrentClocksEventReasons", "until_more_calls:nvmlDeviceGetTemperature:10"
        done = self.run_it(f"fault:clock_reasons:4 kernel:k:1 sync start until_calls:{reasons}:18 {kernels('', 20)} stop sleep:1500 start {kernels('', 10)} {more} stop",
                           faults=f"api_fail={reasons}:999:16:3", SUMMARY="stderr")
        columns = ("SM Clock (MHz)", "Held Down (%)", "Held by Power (%)", "Held by Heat (%)", "Held Cost Bound (%)")
        self.assertEqual([[row[column] for column in columns] for row in self.windows(done)],
                         [["1755.0", "", "", "", ""], ["1755.0", "100.0", "100.0", "0.0", "11.4"]])
        # Not known of both windows together.
        self.assertNotIn("clocks throttled", done.stderr)
        self.assertEqual(done.out.run["energy"]["devices"][0]["missing"], [])

    def test_a_counter_that_is_reset(self):
        # The simulated counter restarts at its latest update, and then advances by more than was used since: a high limit allows for that.
        done = self.run_it(f"kernel:k:1 sync start {kernels('', 10)} fault:energy_reset:1 {kernels('', 10)} until_more_calls:{COUNTER}:2 stop {AFTER}",
                           power="step_us=20000,busy_mw=300000")
        (row,) = self.windows(done)
        self.assertEqual((row["Energy (J)"], row["Power (W)"]), ("", ""))
        self.assertNotEqual(row["SM Clock (MHz)"], "")
        self.assertEqual(done.out.run["energy"]["devices"][0]["counter_resets"], 1)

    def test_a_reset_between_windows_leaves_both(self):
        window = f"start {kernels('', 40)} stop sleep:1500"
        done = self.run_it(f"kernel:k:1 sync {window} fault:energy_reset:1 sleep:300 {window}")
        base = done.out.run["time_zero"]["clock_monotonic_ns"]
        for row in self.windows(done):
            begin = base + int(row["Start (ns)"])
            self.check_energy(done, row, self.used(done, begin=begin, end=begin + int(row["Duration (ns)"])))

    def test_a_call_that_hangs(self):
        text = f"kernel:k:1 sync start {kernels('', 5)} stop"
        done = self.run_it(text, faults="cupti_hang=nvmlDeviceGetTotalEnergyConsumption")
        self.check_unharmed(done, text)
        self.assertIn("window_sum.csv", done.out.files())


class Costs(EnergyTest):
    # Plus the initial allowance; a call begun with some budget left may exceed it.
    AT_ONCE = 30_000_000 + 10_000_000

    def test_readings_take_a_thousandth_of_a_processor(self):
        done = self.run_it(f"kernel:k:1 sync start {kernels('', 100)} stop {AFTER}", power="step_us=1000")
        energy = done.out.run["energy"]
        self.assertLess(energy["readings_cpu_ns"], energy["readings_ns"] / 1000 + self.AT_ONCE)
        self.assertGreater(energy["readings_cpu_ns"], 0)

    def test_a_counter_that_is_dear_to_read(self):
        """As on an H200: three milliseconds per call. Windows have their energy nevertheless."""
        window = f"start {kernels('', 40)} stop"
        done = self.run_it(f"kernel:k:1 sync {window} sleep:2000 {window} {AFTER}",
                           power="step_us=100000,busy_mw=300000,limit_mw=160000,energy_cost_us=3000")
        self.check_two_windows(done)
        energy = done.out.run["energy"]
        # The pause between the windows adds to the budget, too.
        self.assertLess(energy["readings_cpu_ns"], (energy["readings_ns"] + 2e9) / 1000 + self.AT_ONCE)
        self.assertLess(energy["devices"][0]["energy_readings"], 16)

    def test_nothing_is_read_without_a_window(self):
        done = self.run_it(f"kernel:k:1 sync start {kernels('', 5)} stop sleep:3000 {kernels('', 20)}")
        # Readings continue for a second after the window.
        self.assertLess(done.out.run["energy"]["readings_ns"], 3_000_000_000)


if __name__ == "__main__":
    simulated.main()
