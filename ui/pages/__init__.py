"""The pages, one blueprint for each noun."""

from ui.pages import (
    activity,
    brand,
    campaigns,
    compose,
    contacts,
    conversation,
    doctor,
    domains,
    forms,
    home,
    inbox,
    lists,
    login,
    pictures,
    reports,
    settings,
    setup,
    suppressions,
    template_acts,
    templates,
)  # fmt: skip

BLUEPRINTS = (
    setup.pages, login.pages, home.pages, campaigns.pages, reports.pages, compose.pages, templates.pages,
    template_acts.pages, pictures.pages, contacts.pages, conversation.pages, suppressions.pages,
    lists.pages, forms.pages, activity.pages, inbox.pages,
    brand.pages, doctor.pages, domains.pages, settings.pages,
)  # fmt: skip
