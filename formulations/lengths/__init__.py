"""Steps of mixed sequence lengths: which strategy runs which lengths, and what switching costs.

Source: HotSPa (SOSP 2024), whose user chooses strategies and thresholds; here both are decided.
"""
