#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    imagate_fuzz::HTTP(input);
});
